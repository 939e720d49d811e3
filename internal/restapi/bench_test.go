package restapi_test

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
)

// BenchmarkDescribe reads one execution by its key from SQLite, on connections that stay open.
func BenchmarkDescribe(b *testing.B) {
	b.Run("open", func(b *testing.B) { benchmarkDescribe(b, false) })
	b.Run("closed", func(b *testing.B) { benchmarkDescribe(b, true) })
}

func benchmarkDescribe(b *testing.B, closed bool) {
	w := newWorldOn(b, "file:"+filepath.Join(b.TempDir(), "perdure.db"), nil)
	w.want(http.StatusCreated, "", http.MethodPost, "/v1/executions", `{"workflow":"order","key":"42","input":1}`)
	if closed {
		w.want(http.StatusNoContent, "", http.MethodPost, "/v1/executions/order/42/terminate", `{"reason":"measured"}`)
	}
	w.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	b.SetParallelism(32)
	b.ReportAllocs()

	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url+"/v1/executions/order/42", nil)
			if err != nil {
				b.Error(err)
				return
			}

			r.Header.Set("Authorization", "Bearer "+adminKey)
			got, err := w.client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}

			_, err = io.Copy(io.Discard, got.Body)
			_ = got.Body.Close()
			if err != nil || got.StatusCode != http.StatusOK {
				b.Errorf("status %d, %v", got.StatusCode, err)
				return
			}
		}
	})
}
