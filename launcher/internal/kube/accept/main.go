// Accept asks a kube-apiserver whether it accepts the Deployments in files: it makes a dry run that
// refuses unknown fields. The server runs in this process.
//
//	cd launcher/internal/kube && GOWORK=off go run ./accept ../../export/testdata/kubernetes/*.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/swansong-go/swansong/launcher/internal/kube"
)

func main() {
	stderr, err := kube.Quiet()
	if err != nil {
		panic(err)
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(stderr, "accept:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		return errors.New("no files; name the files with Deployments and Jobs")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
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
	var refused error
	for _, name := range files {
		if err := post(ctx, plane, name); err != nil {
			fmt.Printf("%s: kube-apiserver %s refuses the file: %v\n", name, kube.Version(), err)
			refused = errors.New("some files were refused")
			continue
		}
		fmt.Printf("%s: kube-apiserver %s accepts the file\n", name, kube.Version())
	}
	return refused
}

// post sends the file unchanged. Decoding and encoding it here would drop unknown fields.
func post(ctx context.Context, plane *kube.ControlPlane, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	client, resource := plane.Client.AppsV1().RESTClient(), "deployments"
	if strings.HasSuffix(name, ".job.yaml") {
		client, resource = plane.Client.BatchV1().RESTClient(), "jobs"
	}
	return client.Post().Namespace(metav1.NamespaceDefault).Resource(resource).
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
