// Command tally reads the output of `go test -json` and prints a summary for people: one line per
// package, and the output of failed tests.
//
//	go test -json ./... | tally -record FILE
//	tally -sum FILE
//
// With -record it also appends one line per test to FILE. With -sum it counts the tests of all runs
// in FILE, and lists the tests that every run skipped, with the reason. It counts a test once, even
// if several runs execute it. tally exits with status 1 if a test failed.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build that failed
	Test       string
	Elapsed    float64
	Output     string
}

// result is the outcome of one test in one run.
type result struct {
	Package, Test, Action string
	Reason                string // why it was skipped
}

func main() {
	record := flag.String("record", "", "append the result of each test to this file")
	sum := flag.String("sum", "", "print the totals of a recorded file and exit")
	flag.Parse()

	ok, err := true, error(nil)
	if *sum != "" {
		err = total(*sum, os.Stdout)
	} else {
		ok, err = follow(os.Stdin, os.Stdout, *record)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// follow prints a summary of a run while it is in progress. It reports whether everything passed.
func follow(in io.Reader, out io.Writer, record string) (ok bool, err error) {
	ok = true
	type key struct{ pkg, test string }
	output := map[key]*strings.Builder{}
	var results []result

	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, readErr := lines.ReadBytes('\n')
		if readErr == io.EOF && len(line) == 0 {
			break
		} else if readErr != nil && readErr != io.EOF {
			return false, readErr
		}

		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(out, "%s", line) // for example a panic of the go command
			ok = false
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output":
			if output[k] == nil {
				output[k] = &strings.Builder{}
			}
			output[k].WriteString(e.Output)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			fmt.Fprintf(out, "FAIL %s [build failed]\n", e.ImportPath)
			ok = false
		case "pass", "fail", "skip":
			text := ""
			if b := output[k]; b != nil {
				text = b.String()
				delete(output, k)
			}
			ok = ok && e.Action != "fail"
			// After a crash or a time limit, some tests have no end.
			if e.Test == "" && e.Action == "fail" {
				for other, b := range output {
					if other.pkg == e.Package {
						fmt.Fprint(out, b.String())
						delete(output, other)
					}
				}
			}
			printEnd(out, &e, text)
			if e.Test != "" {
				results = append(results, result{e.Package, e.Test, e.Action, reason(&e, text)})
			}
		}
	}
	return ok, appendResults(record, results)
}

// printEnd prints the end of a package or a test, if it is of interest to people.
func printEnd(out io.Writer, e *event, text string) {
	switch {
	case e.Action == "fail":
		fmt.Fprint(out, text)
		if e.Test == "" {
			fmt.Fprintf(out, "FAIL %s %.1fs\n", e.Package, e.Elapsed)
		}
	case e.Test != "" && strings.Contains(text, "WARNING: DATA RACE"):
		// A race between goroutines of another test fails the package. The report of the race is
		// part of this output.
		fmt.Fprint(out, text)
	case e.Test == "" && e.Action == "pass":
		cached := ""
		if strings.Contains(text, "\t(cached)") {
			cached = " (cached)"
		}
		fmt.Fprintf(out, "ok   %s %.1fs%s\n", e.Package, e.Elapsed, cached)
	}
}

// reason returns the text that a test gave when it was skipped. It returns "" for a test that was
// not skipped.
func reason(e *event, text string) string {
	if e.Action != "skip" {
		return ""
	}
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 {
		return "no reason given"
	}
	return strings.ReplaceAll(strings.Join(kept, " "), "\t", " ")
}

func appendResults(file string, results []result) (err error) {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}

	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()

	// Several programs may append to the file at the same time, so all lines go into one write.
	var lines bytes.Buffer
	for _, r := range results {
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%s\n", r.Package, r.Test, r.Action, r.Reason)
	}
	_, err = f.Write(lines.Bytes())
	return err
}

// total prints the tests that every run skipped, and one line: how many packages and tests ran, and
// how they ended. total counts a test as failed if any run of it failed, and as skipped if no run
// executed it.
func total(file string, out io.Writer) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	packages, tests, why := map[string]bool{}, map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			return fmt.Errorf("%s: line %q has %d fields, want 4", file, line, len(fields))
		}
		packages[fields[0]] = true
		name, how := fields[0]+" "+fields[1], fields[2]
		if was := tests[name]; was == "fail" || was == "pass" && how == "skip" {
			how = was
		}
		tests[name], why[name] = how, fields[3]
	}

	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		count[tests[name]]++
		if tests[name] == "skip" {
			fmt.Fprintf(out, "skipped: %s: %s\n", name, why[name])
		}
	}
	_, err = fmt.Fprintf(out, "%d packages, %d tests: %d passed, %d failed, %d skipped\n",
		len(packages), len(tests), count["pass"], count["fail"], count["skip"])
	return err
}
