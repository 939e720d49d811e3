// Package model is the vocabulary of Perdure: addresses and ids, statuses, events, messages, turns,
// reasons. It has only values, with their text forms, arithmetic and stored encoding. It imports no
// other package of ours.
//
// docs/architecture.md defines the words. Everything that is stored or sent is one of these values,
// so a change here is a change of the format. A new field gets a new CBOR key, and old keys are
// never reused. A reader must not ignore an unknown kind of event or message: it returns an error.
package model
