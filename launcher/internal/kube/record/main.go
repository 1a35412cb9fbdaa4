// Record rolls Deployments of every small size with the controllers of Kubernetes, and records
// their decisions. Package roll replays them.
//
//	cd launcher/internal/kube && GOWORK=off go run ./record -out ../roll/testdata/kubernetes.jsonl
//
// The program acts as the kubelet: it makes pods become ready, crash and end. It makes one event
// happen at a time, and waits until the controllers are idle again, so that each decision belongs
// to one state.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/kube"
)

func main() {
	out := flag.String("out", "kubernetes.jsonl", "file to write, with one trace on each line")
	largest := flag.Int("desired", 6, "largest number of replicas")
	parallel := flag.Int("parallel", 24, "number of concurrent rolls")
	flag.Parse()
	stderr, err := kube.Quiet()
	if err != nil {
		panic(err)
	}
	if err := run(*out, *largest, *parallel); err != nil {
		fmt.Fprintln(stderr, "record:", err)
		os.Exit(1)
	}
}

func run(out string, largest, parallel int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	dir, err := os.MkdirTemp("", "kube")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plane, err := kube.Start(ctx, dir)
	if err != nil {
		return err
	}
	if err := plane.RunControllers(ctx); err != nil {
		return err
	}
	seen := watch(ctx, plane.Client)

	traces := grid(kube.Version(), largest)
	errs := make([]error, len(traces))
	var all sync.WaitGroup
	free := make(chan struct{}, parallel)
	for k, t := range traces {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			errs[k] = (&rollout{trace: t, number: k, client: plane.Client, seen: seen}).run(ctx)
		})
	}
	all.Wait()

	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	in := json.NewEncoder(w)
	for k, t := range traces {
		if errs[k] != nil {
			return fmt.Errorf("trace %d (%+v): %w", k, *t, errs[k])
		}
		if err := in.Encode(t); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}
