"""Files elsewhere: objects of S3, Google's and Azure's stores, files of SFTP servers, and released folders there."""
