// Package s3 stores blobs in an S3-compatible object store. It is a separate package so that only
// programs that use it link the client.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/perdure/perdure/payload"
)

// Config says where blobs are stored.
type Config struct {
	// Endpoint is the host of the server, such as s3.eu-central-1.amazonaws.com. A port may follow
	// it, as in localhost:9000.
	Endpoint string
	// Bucket must exist.
	Bucket string
	// Prefix is the beginning of the names of all objects, followed by a slash. It may be empty.
	Prefix string
	// Region is the region of the bucket. If it is empty, the client asks the server.
	Region string
	// AccessKey and SecretKey are the credentials. If both are empty, Open tries the environment
	// (AWS_ACCESS_KEY_ID and so on), then the shared credentials file, then the role of the
	// machine.
	AccessKey, SecretKey string
	// SessionToken belongs to temporary credentials. It may be empty.
	SessionToken string
	// Insecure uses HTTP instead of HTTPS. Use it only for tests.
	Insecure bool
	// Transport makes the requests. The default is the transport of the client library.
	Transport http.RoundTripper
}

// String names the bucket, without the credentials.
func (c Config) String() string { return fmt.Sprintf("s3 bucket %s at %s", c.Bucket, c.Endpoint) }

// GoString returns the same text as String, so that %#v does not print credentials either.
func (c Config) GoString() string { return c.String() }

// Open connects to an object store and checks that the bucket exists.
func Open(ctx context.Context, cfg Config) (payload.Store, error) {
	var problems []error
	if cfg.Endpoint == "" {
		problems = append(problems, errors.New("no endpoint: set Config.Endpoint to the host of the object store, such as s3.eu-central-1.amazonaws.com"))
	}
	if cfg.Bucket == "" {
		problems = append(problems, errors.New("no bucket: set Config.Bucket to the name of an existing bucket"))
	}
	if (cfg.AccessKey == "") != (cfg.SecretKey == "") {
		problems = append(problems, errors.New("one of access key and secret key is missing: set both, or neither to use the credentials of the environment"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg, err)
	}

	login := credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, cfg.SessionToken)
	if cfg.AccessKey == "" {
		login = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}

	client, err := minio.New(cfg.Endpoint, &minio.Options{Creds: login, Secure: !cfg.Insecure, Region: cfg.Region, Transport: cfg.Transport})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg, err)
	}
	prefix := strings.Trim(cfg.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	there, err := client.BucketExists(ctx, cfg.Bucket)

	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", cfg, err)
	case !there:
		return nil, fmt.Errorf("%s does not exist: create it, or correct Config.Bucket", cfg)
	}

	return &bucket{client, cfg.Bucket, prefix}, nil
}

type bucket struct {
	client *minio.Client
	name   string
	prefix string
}

func (b *bucket) Put(ctx context.Context, key string, data []byte) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		// The server checks the MD5 and refuses data that was damaged on the way.
		ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
	})
	return err
}

func (b *bucket) Get(ctx context.Context, key string) ([]byte, error) {
	o, err := b.client.GetObject(ctx, b.name, b.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, notFound(err)
	}
	data, err := io.ReadAll(o)
	if err := errors.Join(notFound(err), o.Close()); err != nil {
		return nil, err
	}
	return data, nil
}

// notFound turns the error for a missing object into payload.ErrNotFound.
func notFound(err error) error {
	if err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return payload.ErrNotFound
	}
	return err
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	return b.client.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{})
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[payload.Blob, error] {
	return func(yield func(payload.Blob, error) bool) {
		for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
			if !yield(payload.Blob{Key: strings.TrimPrefix(o.Key, b.prefix), Stored: o.LastModified}, o.Err) || o.Err != nil {
				return
			}
		}
	}
}
