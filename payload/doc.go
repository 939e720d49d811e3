// Package payload says how the inputs, outputs and messages of an app are stored: in which format,
// and through which transforms.
//
//	app, err := embedded.Config{Payloads: payload.Codec{
//		Format: payload.Msgpack,
//		Chain: []payload.Transform{
//			zstd.Compress(1 << 10),                 // what gets smaller by it
//			payload.Encrypt(keys),                  // everything
//			payload.Offload(blobs, 64 << 10),       // what is still large goes to a file system or to S3
//		},
//	}}.Open(ctx, url, defs...)
//
// Every payload is stored with the name of how it was made, such as "msgpack+zstd+aes-gcm". A
// reader goes by that name and not by its own settings, so they may change while executions run:
// what was written before stays readable as long as the Codec knows the format and the transforms
// (OldFormats, OldChain) and the keys are there. What cannot be read blocks the execution with a
// reason; it goes on once it can.
//
// What is not a payload is stored as it is: names, keys of executions and of steps, texts of
// errors. The key that an execution gets when it is given none is a hash of its input, which lets
// whoever reads the store try out guesses: give executions with secret input a key of their own.
package payload
