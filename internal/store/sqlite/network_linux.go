package sqlite

import "syscall"

// networkFileSystems are the numbers by which Linux knows file systems on other machines. File
// systems of FUSE are not among them: some are local.
var networkFileSystems = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x5346414f: "AFS", 0x6b414653: "AFS",
	0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x564c: "NCP", 0x73757245: "Coda", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x47504653: "GPFS",
}

// networkFileSystem names the network file system of a directory. It returns an empty text for a
// local file system, and if it cannot find out.
func networkFileSystem(dir string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return ""
	}
	return networkFileSystems[uint32(s.Type)] //nolint:gosec // the numbers have 32 bits
}
