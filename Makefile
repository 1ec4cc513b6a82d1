# Needs Python >= 3.11, make and git; everything else is created below .build (the lab's binaries: see roles/lab).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

LAB_NAME ?= lab
LAB_NODES ?= 6
LAB_KIND ?= kwok
LABS ?= 3
KUBERNETES ?= v1.34.1 v1.35.4 v1.36.3 v1.37.1
ORDERS ?= 100000
FORECASTS ?= 500
# What `make test` explores: one of five points and states, and 2,000 orders.
SAMPLED := $(if $(WHOLE)$(filter-out file,$(origin ORDERS)),ORDERS='$(ORDERS)',ORDERS=10000 SAMPLE=5)
# The newest; the others are left to `make lint` and `make test-whole`.
SANITY := core-2.21 $(if $(WHOLE),core-2.16 core-2.19)
# What takes most of the time (a unit test imports each file, too); `make lint` has it.
SANITY_SKIPS := $(addprefix --skip-test ,pylint import)
# The oldest, because the labs have the newest that a Python of the machine can run. Those that lie between these, and the
# one that is not released yet, are left to `make test-whole`; `make check` has one of them.
UNITS := core-2.16 $(if $(WHOLE),core-2.18 core-2.19 core-2.20 core-2.21 core-2.22)

VENV := .build/venv
LINK := .build/collections/ansible_collections/kubeops/node_maintenance
READY := $(VENV)/ready
ifndef START
START := $(shell date +%s)
endif
export START
comma := ,
say = printf '==> [%3d s] %s: %s\n' $$(( $$(date +%s) - $(START) )) "$(1)" "$(2)"

# A directory that was moved needs a new environment, because the scripts in it contain its path.
$(shell mkdir -p .build && { [ "$$(cat .build/where 2>/dev/null)" = '$(CURDIR)' ] || echo '$(CURDIR)' > .build/where; })

OUTER_PATH := $(PATH)
# The caller's own Ansible and cluster are neither used nor touched.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export ANSIBLE_HOME := $(CURDIR)/.build/ansible
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.build/collections
export ANSIBLE_CONFIG := $(CURDIR)/.build/ansible.cfg
export PYTHONPATH := $(CURDIR)/.build/collections
export ANSIBLE_DISPLAY_SKIPPED_HOSTS := false
export ANSIBLE_LOCALHOST_WARNING := false
export ANSIBLE_INVENTORY_UNPARSED_WARNING := false
# Else every start of Python would compile all of it again where it is told to write no bytecode.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.build/pycache
unexport PYTHONDONTWRITEBYTECODE KUBECONFIG $(filter K8S_AUTH_%,$(.VARIABLES))

PLAY := ansible-playbook
SCREEN := ANSIBLE_STDOUT_CALLBACK=kubeops.node_maintenance.maintenance
LAB_VARS = -e lab_name='$(LAB_NAME)' -e lab_nodes='$(LAB_NODES)' -e lab_kind='$(LAB_KIND)'

.PHONY: help env demo check test test-whole test-kubernetes forecast upstream zoo ablation explore mutants lab lab-down chaos bench lint docs molecule release clean
help: ## lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

env: $(READY) ## only the environment
$(READY): requirements.txt requirements-dev.txt constraints.txt .build/where
	@python=''; for p in python3.13 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.13.*/bin/python python3 python3.12 python3.11 \
	  python3.14; do \
	  p=$$(PATH='$(OUTER_PATH)' type -P $$p) || continue; \
	  "$$p" -c 'import ensurepip, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$$p && break; \
	done; \
	[ -n "$$python" ] || { echo 'error: no Python >= 3.11 with the modules venv, ensurepip and ssl on PATH' \
	  '(tried python3, python3.11 to python3.14); on Debian and Ubuntu: apt install python3 python3-venv' >&2; exit 1; }; \
	$(call say,environment,new virtual environment with $$("$$python" -V)); \
	rm -rf .build/nox .build/sanity-*; "$$python" -m venv --clear $(VENV); \
	$(call say,environment,installing ansible-core and the kubernetes client (about half a minute)); \
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --progress-bar off -r requirements-dev.txt; \
	mkdir -p $(dir $(LINK)); ln -sfn ../../../.. $(LINK); : > .build/ansible.cfg; touch $@; \
	$(call say,environment,ready)

demo: LAB_KIND = real
demo: LAB_NODES = 4
demo: $(READY) ## the lab and one maintenance in it, watched by an independent process
	@$(SCREEN) $(PLAY) kubeops.node_maintenance.demo $(LAB_VARS)

lab: $(READY) ## only the lab; LAB_NAME, LAB_NODES, LAB_KIND=real
	@$(SCREEN) $(PLAY) kubeops.node_maintenance.lab $(LAB_VARS)

lab-down: $(READY) ## deletes the lab LAB_NAME
	@$(SCREEN) $(PLAY) kubeops.node_maintenance.lab $(LAB_VARS) -e lab_state=absent

lint: $(READY) ## style, types, documentation, sanity
	@python -m nox --session lint sanity

check: $(READY) ## style, types, and the unit tests of one ansible-core that start no playbook: before each commit
	@rm -f $(TIMES)
	@QUICK=1 $(MAKE) --jobs=2 test-unit-core-2.19 test-lint
	@$(show-times)

test: $(READY) ## the tests; of those in the lab, and of the orders that are explored, a fixed sample
	@$(call say,test,explorations from now on$(comma) on what the others leave idle)
	@rm -f .build/explorations.pid $(TIMES)
	@$(MAKE) --jobs=2 test-explorations test-others
	@$(show-times)
	@$(call say,test,all done)

test-whole: $(READY) ## the same with every test in the lab, every order, each ansible-core, and pylint on three
	@WHOLE=1 $(MAKE) test

# What a version of Kubernetes could break: the routes of pods, a run that is taken up again, and what check mode foresees.
test-kubernetes: $(READY) ## never dark, killed anywhere and idempotence on each Kubernetes; KUBERNETES=v1.37.1
	@for version in $(KUBERNETES); do \
	  $(call say,kubernetes $$version,its binaries are built once per machine); \
	  $(PLAY) kubeops.node_maintenance.lab -e lab_state=built -e lab_all_options=false -e lab_kubernetes=$$version; \
	  $(call say,kubernetes $$version,the tests on $(LABS) labs side by side); \
	  WHOLE=1 LAB_KUBERNETES=$$version python -m pytest -v --numprocesses $(LABS) --reruns 1 -rfER --durations=5 \
	    $(addprefix tests/e2e/test_,$(addsuffix .py,kubernetes kubernetes_next api_errors never_dark killed idempotence)); \
	done

forecast: $(READY) ## where pods fit and what blocks, beside the real scheduler and API server, in FORECASTS generated clusters
	@LAB_NUMBERS=1 FORECASTS='$(FORECASTS)' python -m pytest -v --numprocesses 2 -rP tests/e2e/test_placement.py tests/e2e/test_budget_forecast.py

upstream: $(READY) ## in each case of upstream's own tests, what the collection decides beside what upstream does
	@python -m pytest -v -rP tests/upstream

# In `make test-whole`, too, where ZOO is given.
zoo: $(READY) ## rendered charts that somebody else wrote, maintained in a simulated cluster and in a lab; ZOO=folder
	@WHOLE=1 ZOO='$(or $(ZOO),$(error make zoo ZOO=folder))' python -m pytest -v -rP tests/explore/test_zoo.py tests/e2e/test_zoo.py

ablation: $(READY) ## what fails on the API server without each right of each role; KUBEOPS_ABLATION=docs/ablation.json finds out anew
	@WHOLE=1 python -m pytest -v -rP --durations=20 tests/e2e/test_ablation.py

# Several go on at a time, so each line says whose it is. How long each took stands in the table at the end.
TIMES := .build/times
noted = s=$$(date +%s); trap 'echo "$$(( $$(date +%s) - s )) $(1)" >> $(TIMES)' EXIT
tagged = $(call noted,$(1)); { $(2); } 2>&1 | sed -u 's/^/$(1) | /'
show-times = echo 'Seconds, of which several went on at a time:'; sort -rn $(TIMES) | sed 's/^/  /'
.PHONY: test-others test-lint test-units test-browser test-labs test-roles test-awx test-upstream test-explorations
# Where one fails, nobody waits for the explorations.
or-stop = || { kill -- -$$(cat .build/explorations.pid); exit 1; }
test-others:
	@$(call say,test,lint$(comma) then sanity; beside them unit tests per ansible-core$(comma) a browser)
	@MAKEFLAGS='$(filter-out -j% --job%,$(MAKEFLAGS))' $(MAKE) --jobs=2 test-units test-lint test-browser \
	  $(addprefix test-sanity-,$(SANITY)) $(or-stop)
	@$(call say,test,the lab: its binaries are built once per machine)
	@$(call noted,lab built); $(PLAY) kubeops.node_maintenance.lab -e lab_state=built $(or-stop)
	@$(call say,test,end to end on $(LABS) labs side by side)
	@MAKEFLAGS='$(filter-out -j% --job%,$(MAKEFLAGS))' $(MAKE) --jobs=2 test-labs test-roles $(or-stop)
	@$(if $(WHOLE),$(MAKE) test-awx test-upstream $(or-stop))
# Beside the tests on labs: one role, or all of them.
test-roles:
	@$(call tagged,molecule,python -m nox --session molecule $(if $(WHOLE),,-- cordon))
test-awx:
	@$(call tagged,awx,python -m nox --session awx)
test-upstream:
	@$(call tagged,upstream,$(MAKE) upstream)
test-lint:
	@$(call tagged,lint,python -m nox --session lint)
test-sanity-%:
	@$(call tagged,sanity $*,python -m nox --session 'sanity($*)' $(if $(WHOLE),,-- $(SANITY_SKIPS)))
test-units: $(addprefix test-unit-,$(UNITS))
	@$(if $(WHOLE),$(call tagged,clients,python -m nox --session clients))
test-unit-%:
	@$(call tagged,unit $*,python -m nox --session 'unit($*)')
test-browser:
	@$(call tagged,browser,python -m nox --session browser)
# Once more where one fails, because deadlines meet busy machines; support/reruns.py sets the limit.
test-labs:
	@$(call tagged,labs,python -m pytest -v --numprocesses $(LABS) --reruns 1 --rerun-show-tracebacks -rfERs \
	  --durations=40 tests/e2e)
test-explorations:
	@$(call tagged,explore,BACKGROUND=1 $(SAMPLED) SEED='$(SEED)' python -m nox --session explore)

explore: $(READY) ## faults at every request and random interleavings, in a simulated cluster; ORDERS, SEED, SAMPLE
	@ORDERS='$(ORDERS)' SEED='$(SEED)' python -m nox --session explore

mutants: $(READY) ## how many random mutants of rules and loops the unit tests notice; SAMPLE, SEED, PACKAGE=drain
	@SAMPLE='$(SAMPLE)' SEED='$(SEED)' PACKAGE='$(PACKAGE)' python -m nox --session mutants

CHAOS_NAME := $(if $(filter lab,$(LAB_NAME)),chaos,$(LAB_NAME))
CHAOS_OF_ALL := --lab-name='$(CHAOS_NAME)' --seconds='$(SECONDS)' --seed='$(SEED)' --only='$(ONLY)'
CHAOS_ON_REAL_NODES := chaos.real $(CHAOS_OF_ALL) --kind='$(KIND)'
CHAOS := chaos $(CHAOS_OF_ALL) --labs='$(if $(filter file,$(origin LABS)),1,$(LABS))' --tracks='$(TRACKS)' \
  --outage='$(OUTAGE)' --backends='$(BACKENDS)' --scenes='$(SCENES)' --faults='$(FAULTS)'
chaos: $(READY) ## random faults in its own labs; SECONDS, SEED, LABS, TRACKS, OUTAGE, KIND=kwok, KIND=real; ONLY=... runs one again
	@export PYTHONPATH='$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/e2e:$(CURDIR)/roles/lab/files'; \
	  failed=0; \
	  $(if $(filter real,$(KIND)),,python -m $(CHAOS) || failed=1;) \
	  $(if $(filter kwok,$(KIND))$(if $(KIND),,$(ONLY)),,python -m $(CHAOS_ON_REAL_NODES) || failed=1;) \
	  exit $$failed

bench: $(READY) ## speed compared with kubectl drain and kubernetes.core.k8s_drain
	@python bench/run.py

docs: $(READY) ## the documentation site
	@python -m nox --session docs

molecule: $(READY) ## each role on a lab of its own by Molecule, idempotence too; SCENARIOS='cordon taint'
	@LAB_NAME='$(if $(filter lab,$(LAB_NAME)),molecule,$(LAB_NAME))' python -m nox --session molecule -- $(SCENARIOS)

release: $(READY) ## the archive of the last commit, reproducible, with checksum and SBOM, checked by galaxy-importer
	@python -m nox --session release

clean: ## deletes everything that make built here
	@rm -rf .build
