// Package s3 keeps blobs in an S3-compatible object store. It is a package of its own so that only programs that use it link the client.
package s3
