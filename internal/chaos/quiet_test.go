package chaos_test

import "os"

// quiet reports whether the machine has nothing else to do, so that bars in seconds count. `make
// test-long` sets the variable. At the same time as other tests, a bar in seconds would only
// measure the machine.
func quiet() bool { return os.Getenv("PERDURE_TEST_QUIET") != "" }
