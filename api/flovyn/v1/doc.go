// Package flovynv1 has the messages and services of the Flovyn protocol, generated from
// proto/flovyn/v1. SDKs of other projects speak this protocol, so the numbers of fields and enum
// values in its messages never change.
package flovynv1
