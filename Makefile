# tranship: what people and CI run. Each target works from a clean clone; `scripts/deps.sh` installs what is missing.
#
#   make demo [FILE=...]   the main job on real input, under a minute
#   make web               the web server of isolated components, with a page to look at: http://127.0.0.1:8080/
#   make panorama          a panorama by OpenCV's stages in isolated processes (needs libopencv-stitching-dev, libopencv-imgcodecs-dev,
#                          lomiri-wallpapers-16.04)
#   make test              everything that must be green: format, lints, features, layers, tidy, tests, loom models, examples;
#                          lists at its end what was skipped (TRANSHIP_NO_SKIP=1 makes that a failure)
#   make quick             between two edits: format, lints and unit tests, from the files of the last build
#   make lint              the first part of `make test`
#   make library           builds what `make install` installs
#   make install           copies it: the program, the C library, headers, manual: PREFIX=/usr/local, DESTDIR=, LIBDIR=PREFIX/lib
#   make bench             the numbers (minutes); make bench BENCH=roundtrip for one bench
#   make papers            every figure and table of the four papers, on one page: target/papers/index.html (minutes;
#                          SCALE=whole: an hour; ONLY=FIGURE,...)
#   make bench-build       builds the benches with every peer, and installs those that are missing
#   make torture           the large models, long kill runs and chaos, and what needs Arrow (hours)
#   make wheel             builds the Python package from here, installs it, and runs the programs of its documentation
#   make wheels            builds the wheel into target/wheels: `pip install` takes it from there without a compiler
#   make site              the documentation as a site, in target/site/html
#   make mutants           changes the code in ways that a test has to notice (docs/testing.md); make mutants ONLY=ledger

CARGO ?= cargo
FILE ?=
BENCH ?=
ONLY ?=
SCALE ?= small
PREFIX ?= /usr/local
DESTDIR ?=
# As cargo names it; `dev` builds faster.
PROFILE ?= release
TARGET ?= $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
export CARGO

.PHONY: help demo web panorama test quick lint bench bench-build papers torture wheel wheels site mutants library install deps

help:
	@sed -n 's/^#   //p' Makefile

demo:
	$(CARGO) run --release --quiet -p tranship-cli -- demo $(FILE)

web:
	$(CARGO) build --release --quiet -p tranship-cli -p tranship-web
	PATH="$(abspath $(or $(CARGO_TARGET_DIR),target)/release):$$PATH" tranship run apps/web/web.toml

panorama:
	$(CARGO) build --release --quiet -p tranship-cli -p tranship-capi -p tranship-panorama
	$(or $(CARGO_TARGET_DIR),target)/release/tranship-panorama picture

test:
	@scripts/stages.sh deps fmt clippy features rules doc test loom examples

quick:
	@CARGO_INCREMENTAL=1 scripts/stages.sh fmt clippy units

lint:
	@scripts/stages.sh fmt clippy features rules

bench-build:
	@scripts/deps.sh bench
	$(CARGO) build --release -p tranship-bench --all-features
	$(CARGO) build --release -p tranship-preload -p tranship-capi -p tranship-py

bench: bench-build
	@scripts/bench.sh $(BENCH)

papers: bench-build
	$(CARGO) build --release -p tranship-lab -p tranship-cli -p tranship-web -p tranship-zcopy-preload -p tranship-panorama
	$(or $(CARGO_TARGET_DIR),target)/release/tranship-lab papers --scale $(SCALE) $(if $(ONLY),--only $(ONLY))

torture:
	@scripts/stages.sh libraries torture loom-torture

wheel:
	TRANSHIP_TORTURE=1 $(CARGO) test --package tranship-py --test python -- the_documented_install --nocapture

wheels:
	python3 -m pip wheel --no-deps --wheel-dir $(or $(CARGO_TARGET_DIR),target)/wheels \
		--config-settings maturin.build-args="--profile release --compatibility pypi --auditwheel check" .

site:
	@scripts/site.sh

mutants:
	$(CARGO) run --quiet -p xtask -- mutants $(ONLY)

library:
	$(CARGO) build --profile $(PROFILE) -p tranship-capi -p tranship-cli -p tranship-preload -p tranship-zcopy-preload
	@TARGET='$(TARGET)' scripts/install.sh link

install:
	@TARGET='$(TARGET)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' $(if $(LIBDIR),LIBDIR='$(LIBDIR)') scripts/install.sh

deps:
	@scripts/deps.sh
