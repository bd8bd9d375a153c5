package testbed

import "syscall"

const (
	memoryDir = "/dev/shm"
	// memoryBytes is how much must be free there. Twelve servers at a time, as a test run has, take two.
	memoryBytes = 6 << 30
)

// inMemory returns a directory that is memory, or "" where there is none, or too little of it.
func inMemory() string {
	const tmpfs = 0x01021994 // statfs(2)
	var fs syscall.Statfs_t
	if syscall.Statfs(memoryDir, &fs) != nil || int64(fs.Type) != tmpfs ||
		fs.Bavail*uint64(fs.Bsize) < memoryBytes || syscall.Access(memoryDir, 2) != nil { // 2: to write
		return ""
	}
	return memoryDir
}
