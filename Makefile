# make demo: from nothing to figures on the embedded sample. make site: its search page. make test: linter, types, budget
# of lines and tests. make test-more: what CI runs besides, some of it in environments of its own. make docs: the site of
# the documentation, in build/docs.
#
# PYTHON names the interpreter (3.11 or later), VENV the directory of the environment. torch comes from pip's own
# index; where there is no GPU, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu spares some gigabytes.
PYTHON ?= python3
VENV ?= .venv
# For the newest Pyserini.
PYTHON312 ?= python3.12
# Modules are compiled when they are first imported: compiling all of torch takes as long as downloading it. Without
# their bytecode on disk, every process would compile what it imports, for eight seconds.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL = -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

RUN = $(VENV)/bin/python
WHEEL_VENV = $(VENV)-wheel
# The other end of the range that setup.cfg allows: constraints.txt pins the first.
TRANSFORMERS = 4.57.6 5.23.0
GOLDEN = tests/model/test_golden.py tests/model/test_model_checkpoint.py tests/model/test_model_weights.py \
	tests/train/test_train_losses.py tests/train/test_train_teachers.py

.PHONY: demo site test test-more slow cluster pages lint docs wheel smoke release test-transformers st frameworks spark pyserini-2 constraints clean python

demo: $(VENV)/installed
	$(RUN) -m milco_pyserini demo

# A search page of the sample, without a server.
site: $(VENV)/installed
	$(RUN) -m milco_pyserini encode --corpus sample --encoder mini
	$(RUN) -m milco_pyserini index --vectors vectors/sample
	$(RUN) -m milco_pyserini export web --index indexes/sample.lucene --topics sample --output site
	@echo '$(RUN) -m http.server --directory site'

test: lint $(VENV)-ciff/installed
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow and not pages and not cluster"

test-more:
	$(MAKE) slow
	$(MAKE) cluster
	$(MAKE) pages
	$(MAKE) docs
	$(MAKE) st
	$(MAKE) frameworks
	$(MAKE) spark
	$(MAKE) smoke

# Programs of experiments/, recipes/ and benchmarks/ on a few texts, the search page, torchrun, Ray, plain Pyserini.
slow: $(VENV)/installed-dev
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "slow and not cluster"

# Filling and searching a real OpenSearch. It is that of OPENSEARCH_HOME, the unpacked archive.
OPENSEARCH_HOME ?= ../shared/opensearch/home ../shared/opensearch/home-3.6
cluster: $(VENV)/installed-dev
	set -e; for home in $(OPENSEARCH_HOME); do OPENSEARCH_HOME=$$home $(RUN) -m pytest -m cluster tests/export tests/keywords tests/test_benchmarks.py; done

# Every command of the documentation, and the notebook, as they are.
pages: $(VENV)/installed-dev
	$(RUN) -m pytest -n auto --dist worksteal -m pages tests/test_docs.py

lint: $(VENV)/installed-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m recipes.budget

# The pages of docs/ and the reference of the Python packages, for any static host. A warning is an error.
docs: $(VENV)/installed-dev
	$(RUN) -m sphinx --conf-dir docs --builder html --fresh-env --fail-on-warning --keep-going --quiet . build/docs
	@echo 'open build/docs/index.html'

wheel: $(VENV)/installed-dev
	rm -rf dist build/lib build/bdist.*
	$(RUN) -m build --wheel --outdir dist .

# The wheel alone, in an environment of its own, away from this directory: a missing file or requirement shows.
smoke: $(WHEEL_VENV)/installed wheel
	$(WHEEL_VENV)/bin/python $(PIP_INSTALL) --force-reinstall --no-deps dist/*.whl
	$(WHEEL_VENV)/bin/python -I tests/smoke.py

# Checks version, notes and wheel of a release, and tags the commit.
release: $(VENV)/installed-dev
	$(RUN) -m recipes.release $(VERSION)

# The golden numbers under each transformers, in an environment that has this one's packages behind its own. datasets is
# named because it bounds huggingface_hub.
test-transformers: $(TRANSFORMERS:%=golden-%)

golden-%: $(VENV)/installed-dev
	$(PYTHON) -m venv --clear $(VENV)-transformers-$*
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(VENV)-transformers-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth
	$(VENV)-transformers-$*/bin/python -m pip install --quiet --no-compile --disable-pip-version-check transformers==$* datasets
	$(VENV)-transformers-$*/bin/python -c 'import transformers; assert transformers.__version__ == "$*"'
	$(VENV)-transformers-$*/bin/python -m pytest -n auto -m golden $(GOLDEN)

# sentence-transformers needs transformers 5, so it has an environment of its own, like each transformers above. The
# golden numbers are tested there, too: on the newest transformers that setup.cfg allows.
st: $(VENV)-st/installed
	$(VENV)-st/bin/python -m pytest -n auto -m golden $(GOLDEN)
	$(VENV)-st/bin/python -m pytest -n auto --dist worksteal tests/integrations/test_sentence_transformers.py \
		tests/encode/test_encode_sentence_transformers.py \
		'tests/test_docs.py::test_commands_print_the_shown_output[sentence-transformers.md]'

$(VENV)-st/installed: setup.cfg | $(VENV)/installed-dev
	$(PYTHON) -m venv --clear $(VENV)-st
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(VENV)-st/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth
	$(VENV)-st/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[st]' mteb
	touch $@

# The requirements of LangChain, LlamaIndex and Haystack are newer than constraints.txt.
frameworks: $(VENV)-frameworks/installed
	$(VENV)-frameworks/bin/python -m pytest -n auto --dist worksteal tests/integrations/test_frameworks.py \
		'tests/test_docs.py::test_commands_print_the_shown_output[frameworks.md]'

$(VENV)-frameworks/installed: setup.cfg | $(VENV)/installed-dev
	$(PYTHON) -m venv --clear $(VENV)-frameworks
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(VENV)-frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth
	$(VENV)-frameworks/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable \
		'.[langchain,llama-index,haystack]' langchain-qdrant langchain-milvus llama-index-vector-stores-qdrant qdrant-haystack
	touch $@

# Nothing else needs Spark, which takes half a gigabyte, and Java 17 or later on PATH.
spark: $(VENV)-spark/installed
	$(VENV)-spark/bin/python -m pytest -n auto --dist worksteal \
		'tests/test_docs.py::test_commands_print_the_shown_output[spark.md]' \
		'tests/export/test_scores.py::test_sql_ranks_as_lucene[spark]'

$(VENV)-spark/installed: | $(VENV)/installed-dev
	$(PYTHON) -m venv --clear $(VENV)-spark
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(VENV)-spark/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth
	$(VENV)-spark/bin/python -m pip install --quiet --no-compile --disable-pip-version-check 'pyspark>=4,<5'
	touch $@

# ciff-toolkit needs an older protobuf than the other packages. The tests of milco export find it here.
$(VENV)-ciff/installed: | python
	$(PYTHON) -m venv --clear $(VENV)-ciff
	$(VENV)-ciff/bin/python -m pip install --quiet --no-compile --disable-pip-version-check ciff-toolkit 'protobuf<5'
	touch $@

# Pyserini 2.4 needs Python 3.12 and transformers 5: an environment of its own, without constraints.
pyserini-2: $(VENV)-pyserini-2/installed
	$(VENV)-pyserini-2/bin/python -m pytest -n auto --dist loadfile tests/integrations/test_pyserini.py tests/integrations/test_upstream.py tests/contract \
		tests/index/test_index_lucene.py tests/index/test_index_java.py \
		tests/search/test_fusion.py tests/cli/test_doctor.py \
		tests/test_benchmarks.py::test_engines_have_one_effectiveness_in_lsr_benchmark \
		'tests/test_docs.py::test_commands_print_the_shown_output[pyserini.md]'

$(VENV)-pyserini-2/installed: setup.cfg
	$(PYTHON312) -m venv --clear $(VENV)-pyserini-2
	$(VENV)-pyserini-2/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dense,ir-datasets,parquet,serve]' \
		'pyserini>=2.4,<3' hypothesis lsr-benchmark pytest pytest-xdist
	touch $@

# An environment counts as installed by a stamp, which goes before anything is changed and comes back when all is
# done. Without it the environment is made anew; with it, when setup.cfg or constraints.txt are newer, brought up to date.
$(VENV)/installed: setup.cfg constraints.txt | python
	test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	rm -f $(VENV)/installed $(VENV)/installed-dev
	$(RUN) $(PIP_INSTALL) --editable '.[ir-datasets,parquet,serve]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	rm -f $(VENV)/installed $(VENV)/installed-dev
	$(RUN) $(PIP_INSTALL) --editable '.[dev]'
	touch $(VENV)/installed $@

$(WHEEL_VENV)/installed: setup.cfg constraints.txt | wheel
	$(PYTHON) -m venv --clear $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python $(PIP_INSTALL) dist/*.whl
	touch $@

constraints: $(VENV)/installed-dev
	{ grep '^#' constraints.txt; $(RUN) -m pip freeze --exclude-editable | sed 's/+[^ ]*$$//'; } > constraints.new
	mv constraints.new constraints.txt

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { found=$$($(PYTHON) -V 2>/dev/null); \
		echo "make: Python 3.11 or later is needed, $(PYTHON) is $${found:-not there}: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "make: $(PYTHON) cannot make virtual environments: install python3-venv, or make PYTHON=ANOTHER" >&2; exit 1; }

clean:
	rm -rf $(VENV) $(VENV)-* build docs/reference dist demo *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
