# The standard image for checks in Python: std:python. Python 3.12 on Debian 12.
# It adds settings and no files, so its base, pulled by this digest, is the same tree.
FROM python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254
ENV LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC PYTHONDONTWRITEBYTECODE=1
CMD ["bash"]
