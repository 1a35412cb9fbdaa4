// Package probe checks processes from the outside by the rules of the kubelet of Kubernetes: over
// HTTP, TCP and gRPC, and by commands.
package probe

// A Threshold turns the results of single checks into the verdict of a probe. A verdict of success
// needs Success successful results in a row, and a verdict of failure needs Failure failed ones. If
// the other fields are zero, no check has been made.
//
// The rules are those of the kubelet: only results in a row count, and a single different one
// begins the count anew. A Threshold uses no clock and no lock; run calls it on one goroutine.
type Threshold struct {
	Success, Failure int

	last bool
	row  int // how many results in a row have been equal to the field last
}

// Add records a result, and reports whether enough results in a row have been equal to it. If so,
// the result is the verdict; otherwise the verdict stays as it was.
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
