#!/bin/sh
# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Makes the certificates of these tests anew; they hold for a hundred years and prove nothing to anyone.
# ca: the cluster's authority, without key identifiers, as older clusters have theirs.
# server: 127.0.0.1 and localhost; named: api.example.org alone; client: user "maintainer".
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
issue() { # name subject extensions
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  printf '%s\n' "$3" > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -extfile "$1.ext" -out "$1.pem"
  rm "$1.csr" "$1.ext"
}
for name in ca other; do
  key $name
  printf '[req]\ndistinguished_name=dn\nx509_extensions=x\n[dn]\n[x]\nbasicConstraints=CA:TRUE\n' > ca.conf
  openssl req -x509 -new -key $name.key -subj "/CN=$name of the tests" -days 36500 -config ca.conf -out $name.pem
done
plain='subjectKeyIdentifier=none
authorityKeyIdentifier=none'
issue server /CN=server "subjectAltName=IP:127.0.0.1,DNS:localhost
$plain"
issue named /CN=named "subjectAltName=DNS:api.example.org
$plain"
issue client /O=ops/CN=maintainer "$plain"
rm -f ca.conf ca.srl ca.key other.key
