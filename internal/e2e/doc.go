// Package e2e has end-to-end tests through the public API: programs as users write them, on every
// store. The promises that they test are in docs/guarantees.md, in the guide, and in the
// specifications that their comments name.
package e2e
