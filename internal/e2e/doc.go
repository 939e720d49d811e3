// Package e2e holds tests of the whole through the public face: a program as a user writes it, on
// every store. What they promise stands in docs/guarantees.md, in the guide, and in the
// specifications that their comments name.
package e2e
