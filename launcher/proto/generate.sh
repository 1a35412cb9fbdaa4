#!/usr/bin/env bash
# Generates launcher/lifecyclepb. protoc is that of Debian (apt-get install protobuf-compiler libprotobuf-dev); the generators
# are built here, in the versions that the committed code was made with.
set -euo pipefail
cd "$(dirname "$0")"

protoc=3.21.12
go=v1.36.11
grpc=v1.6.2

found=$(protoc --version 2>/dev/null || true)
[ "$found" = "libprotoc $protoc" ] || { echo "generate.sh: wants libprotoc $protoc, found: ${found:-none}" >&2; exit 1; }

bin=$(cd ../.. && pwd)/bin
GOWORK=off GOBIN=$bin go install "google.golang.org/protobuf/cmd/protoc-gen-go@$go"
GOWORK=off GOBIN=$bin go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$grpc"
PATH=$bin:$PATH protoc -I . --go_out=../lifecyclepb --go_opt=paths=source_relative \
	--go-grpc_out=../lifecyclepb --go-grpc_opt=paths=source_relative ./*.proto
