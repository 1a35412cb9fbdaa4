package promquery_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/promquery"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vector returns the answer of a Prometheus server with a value for each of several series.
func vector(values ...string) string {
	var series []string
	for _, v := range values {
		series = append(series, `{"metric":{"job":"web"},"value":[1767225600.123,"`+v+`"]}`)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
}

// The answers are those that the HTTP API of Prometheus documents.
func TestHolds_UnderstandsAnswersOfPrometheus(t *testing.T) {
	const refused = `{"status":"error","errorType":"bad_data","error":"1:3: parse error: unexpected end of input"}`
	for _, test := range []struct {
		name, answer string
		status       int
		holds        bool
		value, err   string // err is what the error must say after the address of the server
	}{
		{"one", vector("1"), 200, true, "1", ""},
		{"zero", vector("0"), 200, false, "0", ""},
		{"another number", vector("-2.5e-3"), 200, true, "-2.5e-3", ""},
		{"infinity", vector("+Inf"), 200, true, "+Inf", ""},
		{"several", vector("1", "2"), 200, true, "1", ""},
		{"one of several", vector("1", "0.0", "1"), 200, false, "0.0", ""},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1767225600.123,"1"]},"warnings":["w"]}`, 200, true, "1", ""},
		{"none", vector(), 200, false, "", "the query has no value; compare with bool, as in errors < bool 1, so that it has a value if the comparison is false, too"},
		{"NaN", vector("NaN"), 200, false, "", `the query has the value "NaN", which is no number`},
		{"string", `{"status":"success","data":{"resultType":"string","result":[1767225600.123,"x"]}}`, 200, false, "", "the query returns a string instead of numbers"},
		{"matrix", `{"status":"success","data":{"resultType":"matrix","result":[]}}`, 200, false, "", "the query returns a matrix instead of numbers"},
		{"refused", refused, 400, false, "", "the query was refused: 1:3: parse error: unexpected end of input"},
		{"another server", "<html>404</html>", 404, false, "", "the answer, 404 Not Found, is not that of a Prometheus server"},
		{"another format", `{"status":"success","data":{"resultType":"vector","result":[1]}}`, 200, false, "", "the answer of Prometheus cannot be read: json: cannot unmarshal number into Go value of type struct { Value promquery.sample }"},
		{"too large", strings.Repeat("x", 1<<20+1), 200, false, "", "the answer is larger than 1 MiB; use an expression with fewer values"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var path, query string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path, query = r.URL.Path, r.FormValue("query")
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.answer)
			}))
			defer server.Close()
			holds, value, err := promquery.Holds(t.Context(), server.URL+"/prometheus/", `sum(errors{job="web"}) < bool 1`)
			testkit.Equal(t, "path", path, "/prometheus/api/v1/query")
			testkit.Equal(t, "query", query, `sum(errors{job="web"}) < bool 1`)
			testkit.Equal(t, "holds", holds, test.holds)
			testkit.Equal(t, "value", value, test.value)
			text := ""
			if err != nil {
				text = strings.TrimPrefix(err.Error(), "prometheus at "+server.URL+"/prometheus/: ")
			}
			testkit.Equal(t, "error", text, test.err)
		})
	}
}

// If the server cannot be reached or does not answer in time, Holds returns an error. The text of
// the error does not contain the query.
func TestHolds_ReturnsErrorIfServerDoesNotAnswer(t *testing.T) {
	asked, end := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- true
		<-end
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, _, err := promquery.Holds(ctx, server.URL, "some_query")
	if err == nil || !strings.Contains(err.Error(), "context canceled") || strings.Contains(err.Error(), "some_query") {
		t.Errorf("a server that does not answer: %v", err)
	}
	close(end)
	server.Close()
	_, _, err = promquery.Holds(t.Context(), server.URL, "some_query")
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "some_query") {
		t.Errorf("no server: %v", err)
	}
}
