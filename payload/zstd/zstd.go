// Package zstd compresses payloads. It is a separate package so that only programs that use it link
// the compressor.
package zstd

import (
	"context"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/perdure/perdure/payload"
)

// Compress returns a Transform that compresses data of threshold bytes and more with Zstandard, if
// compression makes the data smaller. Put it before payload.Encrypt in a chain, because encrypted
// data cannot be compressed. The length of compressed data reveals something about its content, so
// do not compress secrets together with data that an attacker can choose.
func Compress(threshold int) payload.Transform {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxDecoded))
	if err != nil {
		panic(err)
	}
	return &compression{enc, dec, threshold}
}

type compression struct {
	enc       *zstd.Encoder // EncodeAll and DecodeAll are safe for concurrent use
	dec       *zstd.Decoder
	threshold int
}

// maxDecoded bounds the memory that a damaged or hostile payload can take.
const maxDecoded = 1 << 30

func (*compression) Name() string { return "zstd" }

func (c *compression) Seal(_ context.Context, _ payload.Meta, data []byte) ([]byte, bool, error) {
	if len(data) < c.threshold {
		return nil, false, nil
	}
	small := c.enc.EncodeAll(data, make([]byte, 0, len(data)/2+64))
	return small, len(small) < len(data), nil
}

func (c *compression) Open(_ context.Context, _ payload.Meta, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, fmt.Errorf("%w: zstd: the data is empty", payload.ErrDamaged)
	}
	data, err := c.dec.DecodeAll(sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: zstd: %w", payload.ErrDamaged, err)
	}
	return data, nil
}

func (*compression) Digester(context.Context) (func([]byte) []byte, error) { return nil, nil }
