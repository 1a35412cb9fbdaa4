package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/swansong-go/swansong/internal/mask"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/protobuf/proto"
)

// secrets knows the secret values, and masks them. See [SecretConfig].
type secrets struct {
	processes func() []*process        // returns the processes that run, and those that have ended lately
	changed   func()                   // called when values has changed
	current   atomic.Pointer[valueSet] // read without mu, because every line of output needs it

	mu         sync.Mutex
	names      mask.Names
	files      []string
	configured []string // secrets of the configuration and of the launcher's environment
	inFiles    []string // content of the files, as it was read last
}

// A valueSet is a sorted list of secret values, and the Masker for it.
type valueSet struct {
	values []string
	masker *mask.Masker
}

// newSecrets returns secrets without values. The parameter changed is called while the values are
// locked.
func newSecrets(processes func() []*process, changed func()) *secrets {
	s := &secrets{processes: processes, changed: changed}
	s.current.Store(&valueSet{})
	return s
}

func (s *secrets) masker() *mask.Masker { return s.current.Load().masker }

func (s *secrets) values() []string { return s.current.Load().values }

func (s *secrets) mask(text string) string { return s.masker().Mask(text) }

// maskMetrics returns a copy of the metrics of a process without secrets. Fields that this launcher
// does not know are left out, because it cannot mask them.
func (s *secrets) maskMetrics(metrics *pb.ShutdownMetrics) *pb.ShutdownMetrics {
	if metrics == nil {
		return nil
	}
	shown := proto.Clone(metrics).(*pb.ShutdownMetrics)
	shown.ProtoReflect().SetUnknown(nil)
	for i, operation := range shown.BlockingOperations {
		shown.BlockingOperations[i] = s.mask(operation)
	}
	return shown
}

// configure replaces the configuration, whose files have the content inFiles.
func (s *secrets) configure(c Config, inFiles []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.files, s.inFiles = mask.NewNames(c.Secrets.Names), c.Secrets.Files, inFiles
	s.configured = slices.Concat(c.Secrets.Values, s.names.Env(os.Environ()))
	for _, g := range c.Groups {
		s.configured = append(s.configured, s.names.Env(g.Env)...)
		s.configured = append(s.configured, s.names.Args(g.Command)...)
		s.configured = append(s.configured, s.names.Args(g.Roll.Check.Command)...)
		for _, h := range g.PreStop {
			s.configured = append(s.configured, s.names.Args(h.Command)...)
		}
	}
	s.update()
}

// learn adds the secrets of a process that is about to be started, or has been adopted, and reads
// the files again, because the process may be started for the sake of their new content. An error
// says which file cannot be read; its old content stays secret.
func (s *secrets) learn(p *process, args, env []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.secrets = slices.Concat(s.names.Env(env), s.names.Args(args))
	inFiles, err := readSecrets(s.files)
	if err == nil {
		s.inFiles = inFiles
	}
	s.update()
	return err
}

// update makes the Masker for the values that are known now. The caller holds mu.
func (s *secrets) update() {
	values := slices.Concat(s.configured, s.inFiles)
	for _, p := range s.processes() {
		select {
		case <-p.ended: // all of its output has been read
		default:
			values = append(values, p.secrets...)
		}
	}
	slices.Sort(values)
	if values = slices.Compact(values); !slices.Equal(values, s.values()) {
		s.current.Store(&valueSet{values, mask.New(values)})
		s.changed()
	}
}

// maxSecretFile is the largest content of a secret file. Its encodings are kept in memory.
const maxSecretFile = 64 << 10

// readSecrets returns the content of files.
func readSecrets(files []string) (content []string, err error) {
	for _, file := range files {
		text, err := readSecret(file)
		if err != nil {
			return nil, fmt.Errorf("the secret in %s cannot be masked: %w", file, err)
		}
		content = append(content, text)
	}
	return content, nil
}

func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", errors.Unwrap(err) // without the path, which the caller adds
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err == nil && len(text) > maxSecretFile {
		err = errors.New("it is larger than 64 KiB")
	}
	return string(text), err
}

// started returns the arguments and the environment with which a process was started, as far as the
// system says so.
func started(pid int) (args, env []string) {
	read := func(name string) []string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			return nil
		}
		return strings.Split(string(text), "\x00")
	}
	return read("cmdline"), read("environ")
}
