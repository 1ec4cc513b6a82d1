source /tmp/w/p33x/seeds/env.sh; D=/tmp/w/p33x/seeds; cd $D
cp a.good a.yaml; cp b.good b.yaml
cat > clusters.yml <<Y
all:
  vars: {descheduler_environment: {K8S_AUTH_KUBECONFIG: $LAB/kubeconfig}, descheduler_timeout: 60s}
  hosts:
    canary: {descheduler_flavor: koordinator, descheduler_config: "{{ lookup('ansible.builtin.file', '$D/a.yaml') }}"}
    ack: {descheduler_flavor: ack, descheduler_restart: scale, descheduler_config: "{{ lookup('ansible.builtin.file', '$D/config.yaml') }}", descheduler_overrides: {deschedulingInterval: 88s}}
Y
unset K8S_AUTH_KUBECONFIG KUBECONFIG
timeout 300 ansible-playbook kubeops.node_maintenance.descheduler -i $D/clusters.yml 2>&1 | grep -v "^$" | cut -c1-260 | tail -12; k --kubeconfig $LAB/kubeconfig -n kube-system get cm koord-descheduler-config -o yaml | grep -A2 -i deschedulingInterval
