# docker build -t length-lab .                           on the CPU; --build-arg DEVICE=cuda for a GPU
# docker run --read-only -v lab:/data -p 7860:7860 length-lab    options of `python -m app` may follow; --gpus all for a GPU
FROM python:3.12-slim-bookworm

ARG DEVICE=cpu
ARG TORCH_CPU=https://download.pytorch.org/whl/cpu

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app

# PyPI's torch brings CUDA, gigabytes that a CPU has no use for.
COPY requirements.lock ./
RUN python -m venv /opt/venv \
    && if [ "$DEVICE" = cpu ]; then \
        pip install --no-cache-dir --no-deps --index-url "$TORCH_CPU" "$(grep -o '^torch==[0-9.]*' requirements.lock)"; \
    fi \
    && awk -v device="$DEVICE" '/^[a-z]/ {kept = device != "cpu" || !/^(torch|triton|cuda|nvidia)[-=]/} kept' requirements.lock > /tmp/lock \
    && pip install --no-cache-dir --no-deps --require-hashes -r /tmp/lock \
    && rm /tmp/lock

COPY assets assets
COPY backend backend
COPY app app

# The embedded model, and the kernels compiled by what is run once: kept apart from the volume, which may start empty.
ENV LENGTH_LAB_CACHE=/opt/lab
RUN python -m backend.models.embedded \
    && python -m backend generate --prompt "Why is the sky blue?" --method ldpe --target 12 \
    && python -m backend generate --prompt "Why is the sky blue?" --pic dynamic --ratio 4 --lambda-window 64 --max-new-tokens 12 \
    && useradd --non-unique --uid 1000 lab \
    && install --directory --owner=1000 /data

ENV HOME=/data TMPDIR=/data/tmp LENGTH_LAB_CACHE=/data/lab HF_HOME=/data/huggingface
ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860
USER 1000
VOLUME /data
EXPOSE 7860
HEALTHCHECK --start-period=120s --timeout=10s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/v1/models')"]
ENTRYPOINT ["/bin/sh", "-c", "mkdir -p \"$TMPDIR\" \"$LENGTH_LAB_CACHE\" && cp -a --update --no-preserve=ownership /opt/lab/. \"$LENGTH_LAB_CACHE\" && exec python -m app \"$@\"", "lab"]
