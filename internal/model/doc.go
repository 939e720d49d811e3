// Package model is the vocabulary of Perdure: addresses and ids, statuses, events, messages, turns,
// reasons. It has only values, with their text forms, arithmetic and stored encoding. It imports no
// other package of ours.
//
// docs/architecture.md defines the words. Everything that is stored or sent is one of these values,
// so a change here is a change of format: new fields get new CBOR keys, old keys are never reused,
// and an unknown kind is an error, never ignored.
package model
