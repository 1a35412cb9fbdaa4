// Package kube runs a control plane of Kubernetes in this process: etcd, kube-apiserver, and the controllers of Deployments
// and ReplicaSets, all of them as they are released. There are no nodes and no scheduler, so whoever uses it is the kubelet.
//
// It is what package roll and package export are compared with. A module of its own, and not in go.work: to build it takes
// minutes, and its versions of what others here require as well would become theirs. So nothing is run by the tests;
// what was recorded is in the repository, and these two are for when it is to be looked at anew:
//
//	cd launcher/internal/kube
//	GOWORK=off go run ./record -out ../roll/testdata/kubernetes.jsonl
//	GOWORK=off go run ./accept ../../export/testdata/kubernetes/*.yaml
package kube
