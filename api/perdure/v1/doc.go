// Package perdurev1 is the generated Go code of the native protocol of Perdure. The sources, with
// the comments that matter, are in proto/perdure/v1.
//
// Go programs use perdure.Dial, which speaks this protocol. This package is for tools that need the
// protocol itself.
package perdurev1

//go:generate go -C ../../../scripts/protogen run . -proto ../../proto -out ../..
