// Package probe checks processes from the outside by the rules of the kubelet of Kubernetes: over
// HTTP, TCP and gRPC, and by commands.
package probe

// A Threshold turns the results of single checks into the verdict of a probe. A verdict needs so many
// equal results in a row. The zero value of the other fields means that no check has been made.
type Threshold struct {
	Success, Failure int

	last bool
	row  int // how many results in a row have been last
}

// Add records a result, and reports whether enough results in a row have been like it. If so, the
// result is the verdict; otherwise the verdict stays as it was.
func (t *Threshold) Add(ok bool) (decided bool) {
	if t.row == 0 || t.last != ok {
		t.last, t.row = ok, 0
	}
	t.row++
	if ok {
		return t.row >= t.Success
	}
	return t.row >= t.Failure
}
