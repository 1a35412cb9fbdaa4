package proc

// A User is the user that a process runs as, with its groups.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limits are limits on the resources that a process and the processes that it has started use in
// total. They need a cgroup of version 2 in which this program may enable controllers.
type Limits struct {
	Memory int64   // limit of memory in bytes; 0 means no limit
	CPUs   float64 // limit of CPU time as a number of processors; 0 means no limit
}

func (l Limits) areSet() bool { return l.Memory > 0 || l.CPUs > 0 }
