// Accept asks a kube-apiserver whether it would take the Deployments in files: a dry run, with fields that it does not know
// refused. The server runs in this process.
//
//	cd launcher/internal/kube && GOWORK=off go run ./accept ../../export/testdata/kubernetes/*.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
		return errors.New("name the files to be asked about")
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
			fmt.Printf("%s: kube-apiserver %s refuses it: %v\n", name, kube.Version(), err)
			refused = errors.New("not all were accepted")
			continue
		}
		fmt.Printf("%s: kube-apiserver %s accepts it\n", name, kube.Version())
	}
	return refused
}

// post sends a file as it is, since what is decoded here and encoded again would lose what is not known here.
func post(ctx context.Context, plane *kube.ControlPlane, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	return plane.Client.AppsV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("deployments").
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
