// Package promquery asks a Prometheus server for the value of an expression.
package promquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxAnswer is the largest answer of a server that is read, in bytes. An expression that tells
// whether something works has few values; one with very many is probably a mistake.
const maxAnswer = 1 << 20

// Holds reports whether an expression holds now: whether it has a value, and no value is 0. The
// text value has the first value that is 0, or else the first one. An error means that there is no
// answer: the server cannot be reached or refuses the query, or the query has no value. The server
// is the address of its root, such as http://127.0.0.1:9090.
func Holds(ctx context.Context, server, query string) (holds bool, value string, err error) {
	values, err := ask(ctx, server, query)
	if err != nil {
		return false, "", fmt.Errorf("prometheus at %s: %w", server, err)
	}
	value = values[0]
	for _, v := range values {
		switch n, err := strconv.ParseFloat(v, 64); {
		case err != nil || math.IsNaN(n):
			return false, "", fmt.Errorf("prometheus at %s: the query has the value %q, which is no number", server, v)
		case n == 0:
			return false, v, nil
		}
	}
	return true, value, nil
}

// An answer contains the parts of a server's answer to a query that this package needs.
type answer struct {
	Status string
	Error  string
	Data   struct {
		ResultType string
		Result     json.RawMessage
	}
}

// A sample is a time and a value. Prometheus writes the value as a string, because JSON has no NaN
// and no infinity.
type sample [2]any

func (s sample) value() string { return fmt.Sprint(s[1]) }

// ask returns the values of an expression, of which there is at least one.
//
// The connection is not kept for the next query, which is many seconds later. The proxy of the
// environment is used, unlike for probes: the server can be anywhere.
func ask(ctx context.Context, server, query string) (values []string, err error) {
	at := strings.TrimRight(server, "/") + "/api/v1/query?" + url.Values{"query": {query}}.Encode()
	in, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	out, err := client.Do(in)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // leaves out the URL, because it contains the query
		}
		return nil, err
	}
	defer out.Body.Close()
	text, err := io.ReadAll(io.LimitReader(out.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxAnswer:
		return nil, errors.New("the answer is larger than 1 MiB; use an expression with fewer values")
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || a.Status == "" {
		return nil, fmt.Errorf("the answer, %s, is not that of a Prometheus server", out.Status)
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("the query was refused: %s", a.Error)
	}
	return a.values()
}

// values returns the values of an answer. A query without a value is an error and no failure of the
// canaries: it is often a misspelt name, or the data has not arrived yet.
func (a answer) values() (values []string, err error) {
	switch a.Data.ResultType {
	case "scalar":
		var s sample
		err = json.Unmarshal(a.Data.Result, &s)
		values = []string{s.value()}
	case "vector":
		var series []struct{ Value sample }
		err = json.Unmarshal(a.Data.Result, &series)
		for _, s := range series {
			values = append(values, s.Value.value())
		}
	default:
		return nil, fmt.Errorf("the query returns a %s instead of numbers", a.Data.ResultType)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of Prometheus cannot be read: %w", err)
	case len(values) == 0:
		return nil, errors.New("the query has no value; compare with bool, as in errors < bool 1, so that it has a value if the comparison is false, too")
	}
	return values, nil
}
