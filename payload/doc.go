// Package payload configures how the inputs, outputs and messages of an app are stored: in which
// format, and through which transforms.
//
//	app, err := embedded.Config{Payloads: payload.Codec{
//		Format: payload.Msgpack,
//		Chain: []payload.Transform{
//			zstd.Compress(1 << 10),           // from 1 KiB on, if it gets smaller
//			payload.Encrypt(keys),            // everything
//			payload.Offload(blobs, 64 << 10), // what is still large goes to files or to S3
//		},
//	}}.Open(ctx, url, defs...)
//
// Every payload is stored with the name of its encoding, such as "msgpack+zstd+aes-gcm". A reader
// uses that name and not its own settings, so you may change the settings while executions run.
// Earlier payloads stay readable as long as the Codec knows their format and transforms
// (OldFormats, OldChain) and the keys exist. If a payload cannot be read, its execution is blocked
// with a reason. The execution continues once the payload can be read.
//
// Everything else is stored in plain form: names, keys of executions and of steps, error texts. If
// you give an execution no key, it gets a hash of its input as its key. A reader of the store can
// guess an input and compare the hash. So give explicit keys to executions with secret inputs.
package payload
