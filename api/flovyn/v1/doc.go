// Package flovynv1 has the messages and services of the Flovyn protocol, generated from
// proto/flovyn/v1. SDKs of other projects speak it, so its numbers never change.
package flovynv1
