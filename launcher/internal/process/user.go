package process

import (
	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/events"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

// sockets are the paths of the sockets by which a process and its launcher, or its clients,
// connect.
type sockets struct {
	lifecycle, service string // sockets that the process makes
	notify, launcher   string // sockets that the launcher makes, for sd_notify(3) messages and for notifications
	owner              int    // uid of the other user that can use them; -1: the launcher's user
}

// socketsIn sets the paths of the sockets of the process. The sockets that the process makes are in
// processDir, and the socket that the launcher makes for its messages is in launcherDir.
// launcherSocket is the path of the launcher's own socket. The user with the uid owner can use the
// sockets, too; -1 stands for the launcher's user.
func (p *Process) socketsIn(processDir, launcherDir, launcherSocket string, owner int) {
	p.sockets = sockets{
		statefile.FileOf(processDir, p.id, statefile.LifecycleSocket), statefile.FileOf(processDir, p.id, statefile.ServiceSocket),
		statefile.FileOf(launcherDir, p.id, statefile.NotifySocket), launcherSocket, owner,
	}
	p.conn.SetSocket(p.sockets.lifecycle, owner)
}

// findUser finds as which user the process runs, and prepares the sockets that it uses. If a
// process that runs already cannot be spoken to, that is an alarm and no error.
func (p *Process) findUser() error {
	dir := p.group.Dir
	p.socketsIn(dir, dir, statefile.SocketIn(dir), -1)
	as, _, _, err := confine.LookUp(p.cfg)
	if err == nil && confine.NeedsUserDir(p.cfg, as) {
		err = p.prepareUserDir(as)
	}
	if err != nil && p.adopted != nil {
		p.publish(events.Event{Kind: events.Alarm, Message: "the launcher cannot speak with the process, and stops it by signals: " + err.Error()})
		err = nil
	}
	p.user = as
	return err
}

func (p *Process) prepareUserDir(as *proc.User) error {
	dir := p.group.Dir
	if err := userdir.Make(dir, as); err != nil {
		return err
	}
	launcher := userdir.SocketFor(dir, as.UID)
	if err := p.group.ServeUser(launcher, as); err != nil {
		return err
	}
	p.socketsIn(userdir.In(dir, as.UID), userdir.Of(dir), launcher, int(as.UID))
	return nil
}

// UID returns the uid of the user that the process runs as, and -1 if that is the launcher's user.
// It may be called when the pid of the process is known.
func (p *Process) UID() int { return p.sockets.owner }
