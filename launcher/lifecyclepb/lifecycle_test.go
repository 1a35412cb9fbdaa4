package lifecyclepb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/launcher/lifecyclepb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The generated code matches the .proto files of the protocol. If it does not, run make proto.
func TestGeneratedCode_MatchesProtocolFiles(t *testing.T) {
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("protoc is missing, and CI skips nothing (apt-get install protobuf-compiler)")
		}
		t.Skip("skipped: there is no protoc")
	}
	known := filepath.Join(t.TempDir(), "known.pb") // the descriptors of imported files, which need not exist as files on this machine
	imports := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(durationpb.File_google_protobuf_duration_proto),
		protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto),
	}}
	if in, err := proto.Marshal(imports); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(known, in, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []protoreflect.FileDescriptor{lifecyclepb.File_lifecycle_proto, lifecyclepb.File_admin_proto} {
		cmd := exec.Command(protoc, "-I", "../proto", "--descriptor_set_in="+known, "--descriptor_set_out=/dev/stdout", file.Path())
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		var written descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(out, &written); err != nil {
			t.Fatal(err)
		}
		generated := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(file)}}
		if diff := cmp.Diff(&written, generated, protocmp.Transform()); diff != "" {
			t.Errorf("%s has changed since code was generated from it, run make proto (-written +generated):\n%s", file.Path(), diff)
		}
	}
}
