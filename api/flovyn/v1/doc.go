// Package flovynv1 has the messages and services of the Flovyn protocol, generated from
// proto/flovyn/v1. Flovyn is another project. A Perdure server speaks its protocol, so that the
// SDKs of Flovyn work with Perdure. The numbers of fields and enum values must therefore never
// change.
package flovynv1
