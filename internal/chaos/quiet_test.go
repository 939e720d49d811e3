package chaos_test

import "os"

// quiet reports whether the machine has nothing else to do. Only in that case do tests enforce
// limits in seconds. While other tests run, such a limit would only measure the machine. `make
// test-long` sets the variable.
func quiet() bool { return os.Getenv("PERDURE_TEST_QUIET") != "" }
