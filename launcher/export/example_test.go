package export_test

import (
	"fmt"
	"strings"

	"github.com/swansong-go/swansong/launcher/config"
	"github.com/swansong-go/swansong/launcher/export"
)

func ExampleTo() {
	c, err := config.Parse("launcher.yaml", []byte(`
process_groups:
  - name: keyvalue-runner
    desired_instances: 3
    min_healthy_instances: 2
    depends_on: [store]
    export: {image: registry.example.com/keyvalue:1.0.0}
  - name: store
    export: {image: registry.example.com/store:1.0.0}
`))
	if err != nil {
		panic(err)
	}
	r, err := export.To("kubernetes", c)
	if err != nil {
		panic(err)
	}
	for _, f := range r.Files {
		fmt.Println(f.Name)
	}
	for line := range strings.Lines(string(r.Files[0].Text)) {
		if strings.Contains(line, "maxUnavailable") || strings.Contains(line, "GracePeriod") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	fmt.Println(r.Gaps[0])
	// Output:
	// keyvalue-runner.deployment.yaml
	// store.deployment.yaml
	// maxUnavailable: 1
	// terminationGracePeriodSeconds: 12
	// keyvalue-runner: depends_on: there is no order of Deployments; let the process wait, or not be ready, until store can be reached
}
