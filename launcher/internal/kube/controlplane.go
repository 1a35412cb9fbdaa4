package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// A ControlPlane is a running control plane of Kubernetes.
type ControlPlane struct {
	Config *rest.Config // for clients, which get all permissions
	Client *kubernetes.Clientset
}

// Version returns the version of Kubernetes that this program was built with. The server cannot
// tell it: only the release builds of Kubernetes set its version, by the linker.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}
	return "unknown"
}

// Quiet discards what the control plane prints on os.Stderr, and returns the original os.Stderr.
// Call it before anything else, because some parts read os.Stderr when they start.
func Quiet() (stderr *os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	stderr, os.Stderr = os.Stderr, null
	return stderr, nil
}

// Start starts a control plane that keeps its files in dir and listens on loopback addresses, and
// waits until it serves. It runs until the process ends. A process can have only one, because
// kube-apiserver has global state.
func Start(ctx context.Context, dir string) (*ControlPlane, error) {
	store, err := startEtcd(ctx, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	key, token := filepath.Join(dir, "service-accounts.pem"), rand.Text()
	if err := writeKey(key); err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server := app.NewAPIServerCommand()
	server.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + dir,
		"--token-auth-file=" + tokens, "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount", // needed because no controller creates the account that pods would run as
		"--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000",
	})
	failed := make(chan error, 1)
	go func() { failed <- server.Execute() }()

	c := &ControlPlane{Config: &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // the certificate is self-signed, made at the start
		QPS:             -1,
	}}
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, err
	}
	for {
		_, err := c.Client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return c, nil
		}
		select {
		case err := <-failed:
			return nil, fmt.Errorf("kube-apiserver: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("kube-apiserver is not ready: %w", ctx.Err()), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// RunControllers runs the controllers of Deployments and ReplicaSets as kube-controller-manager
// does, until ctx is done.
func (c *ControlPlane) RunControllers(ctx context.Context) error {
	const workers = 16
	shared := informers.NewSharedInformerFactory(c.Client, 0)
	apps, pods := shared.Apps().V1(), shared.Core().V1().Pods()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, c.Client)
	if err != nil {
		return err
	}
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, c.Client, replicaset.BurstReplicas)
	shared.Start(ctx.Done())
	go deployments.Run(ctx, workers)
	go replicas.Run(ctx, workers)
	return nil
}

// startEtcd starts etcd with one member, and returns its address.
func startEtcd(ctx context.Context, dir string) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	clients := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = dir, "error", true
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	// Etcd requires an address for other members of its cluster. There are none, so nothing uses
	// it.
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", err
	}
	select {
	case <-e.Server.ReadyNotify():
		return clients.String(), nil
	case err := <-e.Err():
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func writeKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// freePort returns a port that is probably still free when it is used: kube-apiserver does not
// report a port that it chooses itself.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
