package confine_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An ordinary user cannot start processes as another user. The command validate says so, too,
// before the launcher does.
func TestLookUp_NeedsPrivilegeForOtherUser(t *testing.T) {
	if os.Geteuid() == 0 {
		const nobody = 65534
		again := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestLookUp_NeedsPrivilegeForOtherUser$")
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as an ordinary user: %v\n%s", err, out)
		}
		return
	}
	for _, c := range []struct{ user, group, field string }{{"root", "", "User"}, {"", "root", "UserGroup"}} {
		_, _, field, err := confine.LookUp(spec.Group{User: c.user, UserGroup: c.group})
		if field != c.field || err == nil || !strings.HasPrefix(err.Error(), "only root, or a launcher with") {
			t.Errorf("%+v: %q, %v", c, field, err)
		}
	}
}
