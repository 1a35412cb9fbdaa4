package debugpage_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("CTXSHUTDOWN_TRACE")
	goleak.VerifyTestMain(m)
}
