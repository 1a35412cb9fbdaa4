// Package kube runs a control plane of Kubernetes in this process: etcd, kube-apiserver, and the
// controllers of Deployments and ReplicaSets, all in released versions. There are no nodes and no
// scheduler: the program that uses it acts as the kubelet.
//
// Packages roll and export are compared with it. It is a module of its own, and not in go.work,
// because building it takes minutes, and its dependencies would determine the versions of shared
// dependencies of the other modules. The tests do not run it; they use recorded results, which are
// in the repository. To renew these, run:
//
//	cd launcher/internal/kube
//	GOWORK=off go run ./record -out ../roll/testdata/kubernetes.jsonl
//	GOWORK=off go run ./accept ../../export/testdata/kubernetes/*.yaml
package kube
