// Package perdurev1 is the generated Go code of the native protocol of Perdure. It is generated
// from proto/perdure/v1. Read the comments there: they say what the messages mean.
//
// Go programs use perdure.Dial, which speaks this protocol. This package is for tools that need the
// protocol itself.
package perdurev1

//go:generate go -C ../../../scripts/protogen run . -proto ../../proto -out ../..
