// Accept asks a kube-apiserver whether it accepts the objects in files: it makes a dry run that
// refuses unknown fields. The server runs in this process.
//
//	cd launcher/internal/kube && GOWORK=off go run ./accept ../../export/testdata/kubernetes/*.yaml
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"
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
		return errors.New("no files; name the files with manifests")
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
	var last []byte // the last complete Deployment, in JSON
	for _, name := range files {
		if err := post(ctx, plane, name, &last); err != nil {
			fmt.Printf("%s: kube-apiserver %s refuses the file: %v\n", name, kube.Version(), err)
			refused = errors.New("Kubernetes has refused at least one of the files")
			continue
		}
		fmt.Printf("%s: kube-apiserver %s accepts the file\n", name, kube.Version())
	}
	return refused
}

// post sends the object in the file to kube-apiserver. It does not decode the object into a Go
// type: that would drop unknown fields, which kube-apiserver must refuse. A Deployment without a
// selector is a patch, which post applies to the last complete Deployment.
func post(ctx context.Context, plane *kube.ControlPlane, name string, last *[]byte) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	var object struct {
		Kind string
		Spec struct{ Selector any }
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return err
	}
	var client rest.Interface
	var resource string
	switch object.Kind {
	case "Deployment":
		client, resource = plane.Client.AppsV1().RESTClient(), "deployments"
		if object.Spec.Selector != nil {
			*last = body
		} else if *last == nil {
			return errors.New("the object has no selector, so it is a patch; give the file of its Deployment before this file")
		} else if body, err = strategicpatch.StrategicMergePatch(*last, body, appsv1.Deployment{}); err != nil {
			return err
		}
	case "Job":
		client, resource = plane.Client.BatchV1().RESTClient(), "jobs"
	case "Service":
		client, resource = plane.Client.CoreV1().RESTClient(), "services"
	case "HorizontalPodAutoscaler":
		client, resource = plane.Client.AutoscalingV2().RESTClient(), "horizontalpodautoscalers"
	case "PodDisruptionBudget":
		client, resource = plane.Client.PolicyV1().RESTClient(), "poddisruptionbudgets"
	default:
		return fmt.Errorf("unknown kind %q", object.Kind)
	}
	return client.Post().Namespace(metav1.NamespaceDefault).Resource(resource).
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
