// Package secrets knows the values that the launcher keeps secret, and masks them in what it prints
// and stores.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/mask"
	"github.com/swansong-go/swansong/launcher/internal/regular"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/proto"
)

// A Config says which values are secret. See launcher.SecretConfig.
type Config struct {
	Names, Values, Files []string
}

// Secrets is the set of the secret values of a launcher and its processes. All methods may be
// called concurrently. Values are masked and not names, since the output of a process has only
// values.
type Secrets struct {
	changed func()                   // called when the values have changed
	current atomic.Pointer[valueSet] // every line of output reads it, so it is read without mu

	mu         sync.Mutex
	names      mask.Names
	files      []string
	configured []string // secret values in the configuration and in the launcher's environment
	inFiles    []string // secret values in the files, when they were last read
	processes  []process
}

// A process has the secret values of one process, which the other processes need not have.
type process struct {
	ended  <-chan struct{} // closed when all output of the process has been read
	values []string
}

// A valueSet is a sorted list of secret values, and the Masker for it.
type valueSet struct {
	values []string
	masker *mask.Masker
}

// New returns Secrets without values. When the values have changed, the Secrets call the function
// changed while they hold their lock. So changed must not call Configure or Learn, which take the
// lock. It may call Values and Mask, which do not.
func New(changed func()) *Secrets {
	s := &Secrets{changed: changed}
	s.current.Store(&valueSet{})
	return s
}

// Masker returns a Masker for the values that are known now. It is nil before the first value is
// known, and a nil Masker masks nothing.
func (s *Secrets) Masker() *mask.Masker { return s.current.Load().masker }

// Values returns the secret values that are known now, sorted.
func (s *Secrets) Values() []string { return s.current.Load().values }

// Mask returns text with the secret values in it masked.
func (s *Secrets) Mask(text string) string { return s.Masker().Mask(text) }

// MaskMetrics returns a copy of the metrics of a process without secrets. Fields that this launcher
// does not know are left out, because it cannot mask them.
func (s *Secrets) MaskMetrics(metrics *pb.ShutdownMetrics) *pb.ShutdownMetrics {
	if metrics == nil {
		return nil
	}
	shown := proto.Clone(metrics).(*pb.ShutdownMetrics)
	shown.ProtoReflect().SetUnknown(nil)
	for i, operation := range shown.BlockingOperations {
		shown.BlockingOperations[i] = s.Mask(operation)
	}
	return shown
}

// Configure replaces the configuration by c, whose files have the content inFiles. It also takes
// the secret values from the launcher's environment and from the configurations of the groups.
//
// The values of a process that runs stay secret, even if the new configuration no longer has them;
// see Learn.
func (s *Secrets) Configure(c Config, inFiles []string, groups []spec.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.files, s.inFiles = mask.NewNames(c.Names), c.Files, inFiles
	s.configured = slices.Concat(c.Values, s.names.Env(os.Environ()))
	for _, g := range groups {
		s.configured = append(s.configured, s.ofGroup(g)...)
	}
	s.update()
}

// ofGroup returns the secrets in the configuration of a group.
func (s *Secrets) ofGroup(g spec.Group) []string {
	values := slices.Concat(s.names.Env(g.Env), s.names.Args(g.Command), s.names.Args(g.Roll.Check.Command))
	for _, p := range g.Probes() {
		args, headers := p.Secrets()
		values = slices.Concat(values, s.names.Args(args), s.names.Env(headers))
	}
	for _, h := range g.PreStop {
		values = append(values, s.names.Args(h.Command)...)
	}
	return values
}

// Learn adds the secrets of a process: those in its configuration, arguments and environment. It is
// called before the process is started, or when it has been adopted. The secrets stay until the
// channel ended is closed. Learn reads the files again, because the process may be started for the
// sake of their new content. An error says which file cannot be read; its old content stays secret.
func (s *Secrets) Learn(ended <-chan struct{}, g spec.Group, args, env []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, process{ended, slices.Concat(s.ofGroup(g), s.names.Env(env), s.names.Args(args))})
	inFiles, err := ReadFiles(s.files)
	if err == nil {
		s.inFiles = inFiles
	}
	s.update()
	return err
}

// update makes the Masker for the values that are known now. The caller holds mu.
func (s *Secrets) update() {
	s.processes = slices.DeleteFunc(s.processes, func(p process) bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	values := slices.Concat(s.configured, s.inFiles)
	for _, p := range s.processes {
		values = append(values, p.values...)
	}
	slices.Sort(values)
	if values = slices.Compact(values); !slices.Equal(values, s.Values()) {
		s.current.Store(&valueSet{values, mask.New(values)})
		s.changed()
	}
}

// maxFile is the largest size in bytes of a secret file. Its encodings are kept in memory, and
// every line of output is searched for them.
const maxFile = 64 << 10

// ReadFiles returns the content of files. It waits for the disk, but for no program that writes to
// a pipe: a file that can be read only once is of no use here, because it is read again at the
// start of each process. An error names the file.
func ReadFiles(files []string) (content []string, err error) {
	for _, file := range files {
		text, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("the secret in %s cannot be masked: %w", file, err)
		}
		content = append(content, text)
	}
	return content, nil
}

func readFile(file string) (string, error) {
	f, err := regular.Open(file, "; it is read again at the start of each process, so use a regular file")
	if err != nil {
		return "", errors.Unwrap(err) // without the path of the file, which the caller adds
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("the file is larger than 64 KiB")
	}
	return string(text), err
}
