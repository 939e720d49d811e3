// Package e2e has end-to-end tests through the public API: programs as users write them, on every
// store. The promises that the tests check are in docs/guarantees.md, in the guide, and in the
// specifications that the comments of the tests name.
package e2e
