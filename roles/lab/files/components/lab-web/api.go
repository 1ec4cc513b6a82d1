// Copyright: Contributors to the kubeops.node_maintenance collection
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// apiServer is an API server by flags, because a kubeconfig would need a YAML parser.
type apiServer struct{ url, ca, cert, key, token string }

func (a apiServer) client() (*http.Client, error) {
	if !strings.HasPrefix(a.url, "http://") && !strings.HasPrefix(a.url, "https://") {
		return nil, fmt.Errorf("-server %q is not a URL", a.url)
	}
	config := &tls.Config{}
	if a.ca != "" {
		text, err := os.ReadFile(a.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", a.ca)
		}
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// get answers a request for the EndpointSlices of all namespaces.
func (a apiServer) get(ctx context.Context, client *http.Client, query string) (io.ReadCloser, error) {
	address := strings.TrimSuffix(a.url, "/") + "/apis/discovery.k8s.io/v1/endpointslices" + query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if a.token != "" {
		token, err := os.ReadFile(a.token)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("the API server answers %s", response.Status)
	}
	return response.Body, nil
}
