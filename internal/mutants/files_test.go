package mutants

// predecessor runs the test that opens an SQLite file after the previous process was killed.
var predecessor = []string{"./internal/e2e", "-run", "TestSQLiteDoesNotWaitForADeadPredecessor$"}

// powerCut runs the test that cuts the power while a store writes.
var powerCut = []string{"./internal/store/sqlite", "-run", "TestPowerCut$"}

// hostTest runs a test of the proof that a process is gone.
func hostTest(run string) []string { return []string{"./internal/cluster/host", "-run", run} }

// files are bugs in the SQLite adapter and in the proof that a process is gone.
var files = []mutant{
	{
		name:  "a sole node of an SQLite file leaves the dead registered",
		file:  "internal/store/sqlite/ownership.go",
		old:   "		if n.Sole {\n",
		new:   "		if false {\n",
		tests: [][]string{predecessor, {"./internal/store/sqlite", "-run", "TestConformance/leases"}},
	},
	{
		name:  "the engine does not register as the sole node of a store that is not shared",
		file:  "internal/engine/engine.go",
		old:   "	self.Sole = !e.cfg.Store.Info().Shared\n",
		new:   "",
		tests: [][]string{predecessor},
	},
	{
		name:  "a hidden entry of /proc proves a death",
		file:  "internal/cluster/host/host.go",
		old:   "		return errors.Is(f.probe(n.PID), errNoProcess)\n",
		new:   "		return true\n",
		tests: [][]string{hostTest("TestGoneNeedsAProof$")},
	},
	{
		name:  "an unreadable entry of /proc proves a death",
		file:  "internal/cluster/host/host.go",
		old:   "	default:\n		return false\n",
		new:   "	default:\n		return errors.Is(f.probe(n.PID), errNoProcess)\n",
		tests: [][]string{hostTest("TestGoneNeedsAProof$")},
	},
	{
		name:  "a process of another user counts as gone",
		file:  "internal/cluster/host/probe_unix.go",
		old:   "	if errors.Is(err, syscall.ESRCH) {\n",
		new:   "	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {\n",
		tests: [][]string{hostTest("TestHiddenProcessIsNotGone$|TestProbeOfTheFirstProcess$")},
	},
	{
		name:  "a process whose first thread has ended counts as gone",
		file:  "internal/cluster/host/host.go",
		old:   " && p.threads <= 1 }",
		new:   " }",
		tests: [][]string{hostTest("TestGoneNeedsAProof$")},
	},
	{
		name:  "the log is synced before it is written",
		file:  "internal/store/sqlite/logfile.go",
		old:   "	if err := f.flush(); err != nil {\n		return err\n	}\n	return f.file.Sync(flags)\n",
		new:   "	if err := f.file.Sync(flags); err != nil {\n		return err\n	}\n	return f.flush()\n",
		tests: [][]string{powerCut},
	},
	{
		name:  "commits are not synced",
		file:  "internal/store/sqlite/open.go",
		old:   "const writerPragmas = `\n	pragma synchronous = full;",
		new:   "const writerPragmas = `\n	pragma synchronous = normal;",
		tests: [][]string{powerCut},
	},
	{
		name:  "the name of a new log is not synced",
		file:  "internal/store/sqlite/files.go",
		old:   "	if err := f.syncName(); err != nil {\n",
		new:   "	if err := error(nil); err != nil {\n",
		tests: [][]string{powerCut},
	},
	{
		name:  "a deleted log is not saved",
		file:  "internal/store/sqlite/rescue.go",
		old:   "		lost.problem = s.moveAll(w)\n",
		new:   "		lost.problem = nil\n",
		tests: [][]string{{"./internal/store/sqlite", "-run", "TestDeletedLogIsSaved$"}},
	},
	{
		name:  "a deleted log is saved although a sync has failed",
		file:  "internal/store/sqlite/rescue.go",
		old:   "	if before == nil {\n",
		new:   "	if true {\n",
		tests: [][]string{{"./internal/store/sqlite", "-run", "TestDeletedLogAfterAFailedSync$"}},
	},
	{
		name:  "a log that grows is not reported",
		file:  "internal/store/sqlite/log.go",
		old:   "		w.log.tried = true\n",
		new:   "",
		tests: [][]string{{"./internal/store/sqlite", "-run", "TestLogThatGrowsIsReported$"}},
	},
}
